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

// HelpEnvironment are the environment variables, a line each.
func HelpEnvironment() string {
	return `KUBECONFIG              a kubeconfig, as kubectl has
TAKO_CONTEXT            a context of contexts.yaml, or of KUBECONFIG
TAKO_NAMESPACE          the namespace
XDG_CONFIG_HOME         where the settings are, default ~/.config
XDG_STATE_HOME          where apply saves what was before, default ~/.local/state
VISUAL, EDITOR          the editor of edit
NO_COLOR                no colour; CLICOLOR_FORCE=1 is the opposite
`
}

// HelpFiles are the files that a person keeps, a line each.
func HelpFiles() string {
	return `~/.config/tako/contexts.yaml    servers and credentials; mode 0600
~/.config/tako/prefs.yaml       preferences: color, editor
~/.local/state/tako/            what objects were before an apply that failed half way
DIR/admin.kubeconfig            what "tako server --data-dir DIR" writes for whoever runs it
`
}
