package h2

// Aside does something in a goroutine that ends with it, and waits for that: the stack that it needs, some 8 KiB to write to a connection, goes
// back when it has been done, and not when the collector next finds it unused.
func Aside(do func()) {
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		do()
	}()
	if fault := <-ended; fault != nil {
		panic(fault) // of the call, as it would be without
	}
}
