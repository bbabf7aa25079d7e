package dnf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
)

// The files of the plugin versionlock, dnf-plugin-versionlock(8).
const (
	lockConfig  = configDir + "/plugins/versionlock.conf"
	lockDefault = configDir + "/plugins/versionlock.list"
	lockListMax = 1 << 20 // bytes: ours, far above any real one
)

// lockSettings reads the plugin's configuration: whether it is on, and where its list is.
func (d *Dnf) lockSettings() (on bool, list string) {
	b, err := os.ReadFile(d.root + lockConfig)
	if err != nil {
		return false, d.root + lockDefault
	}
	on, list = true, lockDefault
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, "=")
		switch name, value = strings.TrimSpace(name), strings.TrimSpace(value); name {
		case "enabled":
			on = slices.Contains([]string{"1", "yes", "true", "on"}, strings.ToLower(value))
		case "locklist":
			list = value
		}
	}
	return on, d.root + strings.TrimPrefix(list, d.root)
}

func (d *Dnf) locks() bool {
	on, _ := d.lockSettings()
	return on
}

func (d *Dnf) lockList() string {
	_, list := d.lockSettings()
	return list
}

// held are the packages that versionlock keeps, sorted.
func (d *Dnf) held() ([]string, error) {
	on, list := d.lockSettings()
	if !on {
		return nil, nil
	}
	b, err := os.ReadFile(list)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &reason.Error{Code: reason.InputOutput, Cause: err}
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		if name := lockedName(line); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// lockedName is the package of a line: what is before the version in NAME-[EPOCH:]VERSION-RELEASE[.ARCH], or else all of it, which is how
// people write lines by hand. It is empty for a comment, and for what is excluded.
func lockedName(line string) string {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' || line[0] == '!' {
		return ""
	}
	release := strings.LastIndexByte(line, '-')
	if release <= 0 {
		return line
	}
	version := strings.LastIndexByte(line[:release], '-')
	if version <= 0 || !isVersion(line[version+1:release], line[release+1:]) {
		return line
	}
	return line[:version]
}

// isVersion tells a version and its release from parts of a name, which may have dashes, too: there is an epoch, as the plugin writes it, or
// both begin with a digit.
func isVersion(version, release string) bool {
	if version == "" || release == "" {
		return false
	}
	if epoch, rest, ok := strings.Cut(version, ":"); ok {
		return epoch != "" && rest != "" && strings.Trim(epoch, "0123456789") == ""
	}
	return isDigit(version[0]) && isDigit(release[0])
}

// Hold writes lines of versionlock, or takes them away.
func (d *Dnf) Hold(ctx context.Context, names []string, held bool) error {
	on, list := d.lockSettings()
	if !on {
		return &reason.Error{Code: reason.PackageOptionUnsupported, Cause: errors.New("dnf has no plugin versionlock here"),
			Hint: "install python3-dnf-plugin-versionlock: `package: {package: python3-dnf-plugin-versionlock}` before this one"}
	}
	versions, err := d.database.look(names, true)
	if err != nil {
		return &reason.Error{Code: reason.InputOutput, Cause: err}
	}
	root, err := disk.OpenRoot("/")
	if err != nil {
		return err
	}
	defer root.Close()
	dir, name, err := root.Parent(list)
	if err != nil {
		return err
	}
	defer dir.Close()
	st, err := dir.Stat(name)
	if err != nil {
		return err
	}
	var old []byte
	if st.Exists() {
		if old, st, err = dir.ReadFile(name, lockListMax); err != nil {
			return err
		}
	}
	text := locksText(string(old), names, versions, held)
	_, err = durable.Write(ctx, root, durable.WriteSpec{Path: list, Content: strings.NewReader(text), Size: int64(len(text)),
		Mode: durable.Keep, UID: durable.Keep, GID: durable.Keep, Expect: &st.Signature})
	return err
}

// locksText is a list of versionlock with lines for packages, or without. versions[i] belongs to names[i]. Other lines stay.
func locksText(old string, names, versions []string, held bool) string {
	var text strings.Builder
	for line := range strings.Lines(old) {
		if !slices.Contains(names, lockedName(line)) {
			text.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	for i, name := range names {
		if !held || versions[i] == "" {
			continue
		}
		v := versions[i]
		if !strings.Contains(v, ":") {
			v = "0:" + v
		}
		fmt.Fprintf(&text, "%s-%s.*\n", name, v)
	}
	return text.String()
}
