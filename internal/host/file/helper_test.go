package file_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/kill"
)

func TestMain(m *testing.M) { kill.Main(m, openType) }

func openType(state string) (hosttest.TypeOf, io.Closer, error) {
	root, err := disk.OpenRoot("/")
	if err != nil {
		return nil, nil, err
	}
	store, err := content.Open(storeOf(state), content.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	typ := file.NewTrees(file.New(file.Options{Root: root, Content: store}))
	return func(declare.Resource) host.Type { return typ }, root, nil
}

// storeOf is the directory of the content store of an agent.
func storeOf(state string) string { return filepath.Join(state, "content") }

// row is the line of a kill test for one resource, of which a name in the ground is seen.
func (g *ground) row(r declare.Resource, name string, arrange func()) kill.Row {
	g.Helper()
	return kill.Row{
		Open: openType, Resources: []declare.Resource{r}, State: g.TempDir(), Arrange: func(testing.TB) { arrange() },
		See: func(testing.TB) []string { return []string{fmt.Sprintf("%+v", g.look(name))} },
	}
}
