// Program stands for a program of the project in the tests of the harness.
package main

import "fmt"

func main() {
	fmt.Println("built and run")
}
