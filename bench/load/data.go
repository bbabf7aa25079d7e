package load

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
)

const (
	// deliveredMax is how long a list may take to the server, and from there to a host: far above every bar.
	deliveredMax = 5 * time.Minute
	// deliveredPause is between two looks at a Node.
	deliveredPause = 50 * time.Millisecond
	bundleConfig   = "quotas"
	// valueRandomSize is how many bytes of a value cannot be guessed; with its key and what stands around it a body has 116.
	valueRandomSize = 33
)

// WriteData writes a list of data as tako bundle push reads it.
func WriteData(path string, entries int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out, random, value := bufio.NewWriter(file), rand.NewChaCha8([32]byte{}), make([]byte, valueRandomSize)
	to := json.NewEncoder(out)
	for i := range entries {
		_, _ = random.Read(value) // never fails
		d := declare.Data{Key: fmt.Sprintf("app/item-%07d", i), Value: base64.StdEncoding.EncodeToString(value)}
		_ = to.Encode(d) // errors of a bufio.Writer stay until Flush
	}
	return errors.Join(out.Flush(), file.Close())
}

// Push pushes a list with the program at a path, has a config name it, and returns how many bytes its entries have.
func (f *Fleet) Push(ctx context.Context, program, list string) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, deliveredMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "bundle", "push", list, "-o", "json")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+f.Kubeconfig())
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("push %s: %w", list, err)
	}
	var pushed struct {
		Digest string `json:"digest"`
		Bytes  int64  `json:"bytes"`
	}
	if err := json.Unmarshal(out, &pushed); err != nil {
		return 0, err
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig", "metadata": map[string]any{"name": bundleConfig},
		"spec": map[string]any{"resources": []any{}, "bundle": map[string]any{"digest": pushed.Digest}},
	})
	if err != nil {
		return 0, err
	}
	c := f.Client()
	defer c.Leave()
	return pushed.Bytes, c.Post(ctx, ConfigsPath, body)
}

// Delivered waits until a host has said that it has so many entries.
func (f *Fleet) Delivered(ctx context.Context, node string, entries int) error {
	ctx, cancel := context.WithTimeout(ctx, deliveredMax)
	defer cancel()
	c := f.Client()
	defer c.Leave()
	var n v1alpha1.Node
	for {
		text, err := c.Get(ctx, nodesPath+"/"+node)
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		if err == nil && n.Status.Delivered == int64(entries) {
			return nil
		}
		if waitErr := Pause(ctx, deliveredPause); waitErr != nil {
			return fmt.Errorf("node %s has %d of %d entries, and says %+v: %w", node, n.Status.Delivered, entries, n.Status.Verdict, errors.Join(err, waitErr))
		}
	}
}

// Bulk is how long it takes to read, hash, write and sync so many bytes in one file each, in a directory.
func Bulk(dir string, size int64) (time.Duration, error) {
	from, err := os.Create(filepath.Join(dir, "from"))
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(dir, "to"))
	if err != nil {
		return 0, err
	}
	defer to.Close()
	if _, err := io.CopyN(from, rand.NewChaCha8([32]byte{}), size); err != nil {
		return 0, err
	}
	start := time.Now()
	_, err = io.Copy(io.MultiWriter(sha256.New(), to), io.NewSectionReader(from, 0, size))
	err = errors.Join(err, to.Sync())
	return time.Since(start), err
}
