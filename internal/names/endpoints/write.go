package endpoints

import (
	"bytes"
	"context"
	"errors"
	"path"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/names"
)

// The names of the files.
const (
	DocumentFile = "endpoints.json"
	TableFile    = "endpoints"
)

// fileMode lets every program read them: they have no secret in them.
const fileMode = 0o644

// Write brings both files of a directory, which must be there, to what an index says. It reports whether one of them had to be changed. A
// file that somebody else has changed is put right.
func Write(ctx context.Context, root *disk.Root, dir string, x *names.Index) (changed bool, err error) {
	d := DocumentOf(x)
	document, err := d.JSON()
	if err != nil {
		return false, err
	}
	var specs []durable.WriteSpec
	for _, file := range []struct {
		name    string
		content []byte
	}{{DocumentFile, document}, {TableFile, d.Table()}} {
		same, err := says(root, dir, file.name, file.content)
		if err != nil {
			return false, err
		}
		if !same {
			specs = append(specs, durable.WriteSpec{Path: path.Join(dir, file.name), Content: bytes.NewReader(file.content), Size: int64(len(file.content)),
				Mode: fileMode, UID: durable.Keep, GID: durable.Keep, Force: true})
		}
	}
	if len(specs) == 0 {
		return false, nil
	}
	var errs []error
	for _, result := range durable.WriteAll(ctx, root, specs) {
		changed = changed || result.Changed
		errs = append(errs, result.Err)
	}
	return changed, errors.Join(errs...)
}

// says reports whether a file has a content. What is no file, or cannot be read, has another one: whoever writes it says why that cannot be.
func says(root *disk.Root, dir, name string, content []byte) (bool, error) {
	d, err := root.Dir(dir)
	if err != nil {
		return false, err
	}
	defer d.Close()
	st, err := d.Stat(name)
	if err != nil || !st.Exists() || st.Size != int64(len(content)) || st.Mode&0o7777 != fileMode {
		return false, err
	}
	there, _, err := d.ReadFile(name, st.Size)
	return err == nil && bytes.Equal(there, content), nil
}
