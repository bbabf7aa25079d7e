// Package sample is broken by the tests of mutants.
package sample

// Limit bounds n by 10.
func Limit(n int) int {
	if n > 10 {
		return 10
	}
	return n
}
