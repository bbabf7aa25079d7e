package file

import (
	"os"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
)

// versionOf is what is noted of a content before it goes. A temporary file's is nobody's.
func versionOf(path string, old *os.File) content.Version {
	if _, name := split(path); disk.IsTemporary(name) {
		return content.Version{}
	}
	st, err := disk.StatAt(int(old.Fd()), "")
	if err != nil {
		return content.Version{}
	}
	return content.Version{Path: []byte(path), Mode: st.Perm(), UID: st.UID, GID: st.GID}
}
