package watch

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strconv"
)

// namesShare is the part of the kernel's watches, one in namesShare, up to which directories are watched that only belong to something
// larger. Such a tree may have any number of them; and the limit is one for all programs of a user, of which systemd needs a watch for
// each service, to hear of its end.
const namesShare = 2

var errShare = errors.New("half of the watches that the kernel allows are left to everything else")

// limitFiles say how many watches a user may have: on the host, and in a user namespace.
var limitFiles = []string{"/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"}

// shareOfNames is how many watches there may be when one more is added for WatchNames. Where the limit cannot be read, the kernel says it.
func shareOfNames() int {
	most := math.MaxInt
	for _, file := range limitFiles {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.Atoi(string(bytes.TrimSpace(b))); err == nil {
			most = min(most, n/namesShare)
		}
	}
	return most
}

// isNames reports whether nobody watches anything of the way but which entries there are.
func (y *way) isNames() bool { return len(y.entries)+len(y.all) == 0 }

// takesTooMany reports whether a way is to be left to who looks by himself, because of its share.
func (w *Watcher) takesTooMany(y *way) bool {
	return y.isNames() && y.wd == 0 && len(w.nodes) >= w.share
}
