package sample

import (
	"os"
	"testing"
)

func TestLimit(t *testing.T) {
	if Limit(11) != 10 || Limit(9) != 9 {
		t.Error("not limited")
	}
}

func TestRed(t *testing.T) { t.Error("always red") }

func TestSkipped(t *testing.T) { t.Skip("always skipped") }

func TestDies(t *testing.T) {
	if Limit(11) != 10 {
		os.Exit(3)
	}
}
