package clienttest_test

import (
	"testing"

	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/client/clienttest"
)

func TestMemory(t *testing.T) {
	clienttest.Suite(t, false, func(*testing.T, string) client.Store { return &clienttest.Memory{} })
}
