// Package selection reads which objects a command line means: KIND NAME..., KIND/NAME..., and the flags that select by label,
// field and namespace. It asks the server which kinds there are, and for the names that selectors mean. It owns no goroutine.
package selection
