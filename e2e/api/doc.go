// Package api proves the API of tako server end to end: the built program, run as a process, is used through the tools that
// people use it with (kubectl, client-go, controller-runtime), and is killed, starved of disk, attacked and cut from its store
// meanwhile.
//
// All tests need the build tag e2e. TestMain builds the program once. A server (server_test.go) is one process with a data
// directory of its own; restarted, it keeps its port, as it would in production. Its owner is the test that made it, whose
// cleanup kills it; the kernel kills it when the test process dies before that. The tests look at the server as others see
// it, by requests, files and its process; they wait for states, never for a time.
package api
