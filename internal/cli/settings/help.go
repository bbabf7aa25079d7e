package settings

import "fmt"

// Help is the page about the settings in a directory.
func Help(directory string) string { return fmt.Sprintf(configHelp, directory) }

const configHelp = `tako finds its server in this order; the first that is given counts:

  --kubeconfig FILE          a kubeconfig, with --context one of its contexts
  --context NAME             a context of contexts.yaml, or of $KUBECONFIG
  TAKO_CONTEXT=NAME          the same
  KUBECONFIG=FILE            a kubeconfig
  current: NAME              in contexts.yaml

A server writes DIR/admin.kubeconfig for whoever runs it: export KUBECONFIG=DIR/admin.kubeconfig

%[1]s/contexts.yaml holds servers and credentials. With credentials in it, its mode must be 0600:

  current: prod
  contexts:
    prod:
      server: https://tako.example.net:6443
      certificateAuthority: prod-ca.pem      # or certificateAuthorityData: the PEM text
      tokenFile: prod.token                  # or token; or clientCertificate and clientKey
      namespace: web
    lab:
      kubeconfig: /srv/lab/admin.kubeconfig

%[1]s/prefs.yaml holds what is no secret:

  color: never      # auto, always, never
  editor: vim       # $VISUAL and $EDITOR win over it

The namespace is that of -n, TAKO_NAMESPACE, the context, or default.
`
