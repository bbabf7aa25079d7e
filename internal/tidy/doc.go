// Package tidy is tests of the repository itself. TestTree reads the tree once and puts each check to it; a check is a function
// from the tree to findings, and says with each what to do about it. What is agreed (who may import what, sizes, words, calls) is
// data, at the top of the file of its check. TestChecks shows for each check a small tree that it must find fault with.
//
// The package has nothing but tests, imports nothing of the product, and starts no goroutine.
package tidy
