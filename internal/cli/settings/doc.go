// Package settings is what the command line knows before it asks anybody: which server, as whom, in which namespace, and
// how a person likes the output.
//
// Two files below $XDG_CONFIG_HOME/tako hold it: contexts.yaml with servers and credentials, which only its owner may read,
// and prefs.yaml with preferences, which may stand in a public repository of dot files. For every value a flag wins over
// the environment, and the environment over the files:
//
//	server     --kubeconfig or --context, TAKO_CONTEXT, KUBECONFIG, `current` of contexts.yaml
//	namespace  --namespace, TAKO_NAMESPACE, the context's, "default"
//
// The package reads files and starts nothing.
package settings
