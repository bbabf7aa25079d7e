// Package account is whom tasks run as: users that the host has, and for each instance one of its own.
//
// The package starts no goroutine.
package account
