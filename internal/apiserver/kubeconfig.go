package apiserver

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"tako.dev/tako/internal/trust"
)

// kubeconfigName is the administrator's kubeconfig in the data directory.
const kubeconfigName = "admin.kubeconfig"

// adminName is who the administrator is in the audit log.
const adminName = "tako:admin"

// kubeconfig is what an administrator needs to use the API. It is written when the server starts and whenever the server's own
// certificate is renewed: the administrator's lasts as long.
type kubeconfig struct {
	path, url string
	ca        *trust.CA
	log       *slog.Logger
	due       chan struct{} // of one: that it is to be written anew
}

var _ dynamiccertificates.Listener = (*kubeconfig)(nil)

func newKubeconfig(path, url string, ca *trust.CA, log *slog.Logger) *kubeconfig {
	return &kubeconfig{path: path, url: url, ca: ca, log: log, due: make(chan struct{}, 1)}
}

// Enqueue has it written anew.
func (k *kubeconfig) Enqueue() {
	select {
	case k.due <- struct{}{}:
	default: // it is going to be
	}
}

// Run writes it when it is due, until the context ends, and again after a pause where that has not worked.
func (k *kubeconfig) Run(ctx context.Context) {
	again := time.NewTimer(0)
	again.Stop()
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.due:
		case <-again.C:
		}
		if err := k.write(time.Now()); err != nil {
			k.log.Error("write the administrator's kubeconfig", "path", k.path, "err", err, "again", renewPause)
			again.Reset(renewPause)
		}
	}
}

// write writes it, with a new certificate, readable for the server's user alone.
func (k *kubeconfig) write(now time.Time) error {
	admin, err := k.ca.IssueClient(trust.ClientRequest{User: adminName, Groups: []string{user.SystemPrivilegedGroup}}, now)
	if err != nil {
		return err
	}
	const name = "tako"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: k.url, CertificateAuthorityData: k.ca.CertificatePEM()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.CertificatePEM(), ClientKeyData: admin.KeyPEM()}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	b, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return trust.WritePrivate(k.path, b)
}
