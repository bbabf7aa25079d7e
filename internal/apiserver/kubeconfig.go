package apiserver

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"tako.dev/tako/internal/trust"
)

// kubeconfigName is the administrator's kubeconfig in the data directory, for the first minutes: it is made anew at each start.
const kubeconfigName = "admin.kubeconfig"

// adminName is who the administrator is in the audit log.
const adminName = "tako:admin"

// writeKubeconfig writes what an administrator needs to use the API, readable for the server's user alone.
func writeKubeconfig(path, url string, ca *trust.CA, now time.Time) error {
	admin, err := ca.IssueClient(trust.ClientRequest{User: adminName, Groups: []string{user.SystemPrivilegedGroup}}, now)
	if err != nil {
		return err
	}
	const name = "tako"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca.CertificatePEM()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.CertificatePEM(), ClientKeyData: admin.KeyPEM()}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	b, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return trust.WritePrivate(path, b)
}
