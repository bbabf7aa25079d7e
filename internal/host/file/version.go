package file

import (
	"io"
	"os"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
)

// versionOf is what is noted of a content before it goes. A temporary file's is nobody's.
func versionOf(path string, old io.Reader) content.Version {
	f, isFile := old.(*os.File)
	if _, name := split(path); !isFile || disk.IsTemporary(name) {
		return content.Version{}
	}
	st, err := disk.StatAt(int(f.Fd()), "")
	if err != nil {
		return content.Version{}
	}
	return content.Version{Path: []byte(path), Mode: st.Perm(), UID: st.UID, GID: st.GID}
}
