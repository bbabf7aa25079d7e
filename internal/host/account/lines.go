package account

import (
	"slices"
	"strconv"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
)

// exactly is a file of keys with these lines and no others.
func exactly(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(trimmed(line))
		b.WriteByte('\n')
	}
	return b.String()
}

// trimmed is a line without blanks around it.
func trimmed(line string) string { return strings.Trim(line, " \t") }

// with adds lines to a file of keys. A key that is there with other options or another comment gets the declared ones, where it stands,
// and what repeats it goes: sshd looks for a second line of a key, which might allow more. Everything else stays as it is.
func with(text string, lines []string) string {
	declared := blobsOf(lines)
	written := make(map[string]bool, len(lines))
	var b strings.Builder
	for line := range strings.Lines(text) {
		k, err := declare.ParseSSHKey(endless(line))
		want, ours := declared[k.Blob]
		switch {
		case err != nil || !ours:
			b.WriteString(line)
		case !written[k.Blob]:
			written[k.Blob] = true
			b.WriteString(want)
			b.WriteByte('\n')
		}
	}
	return joined(b.String(), lines, written)
}

// joined adds the lines whose keys have not been written yet.
func joined(text string, lines []string, written map[string]bool) string {
	var b strings.Builder
	b.WriteString(text)
	if text != "" && !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
	for _, line := range lines {
		if k, err := declare.ParseSSHKey(line); err == nil && !written[k.Blob] {
			written[k.Blob] = true
			b.WriteString(trimmed(line))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// without takes the keys of lines out of a file.
func without(text string, lines []string) string {
	declared := blobsOf(lines)
	var b strings.Builder
	for line := range strings.Lines(text) {
		k, err := declare.ParseSSHKey(endless(line))
		if _, ours := declared[k.Blob]; err != nil || !ours {
			b.WriteString(line)
		}
	}
	return b.String()
}

// endless is a line without its end.
func endless(line string) string { return strings.TrimRight(line, "\r\n") }

// blobsOf maps each key to its line.
func blobsOf(lines []string) map[string]string {
	blobs := make(map[string]string, len(lines))
	for _, line := range lines {
		if k, err := declare.ParseSSHKey(line); err == nil {
			blobs[k.Blob] = trimmed(line)
		}
	}
	return blobs
}

// keyChanges lists the keys that come and go. Options are not shown: they may hold what others need not see.
func keyChanges(have, want string) []host.Change {
	there, wanted := keysOf(have), keysOf(want)
	var changes []host.Change
	for _, k := range except(there, wanted) {
		changes = append(changes, host.Change{Field: "key", From: keyText(k)})
	}
	for _, k := range except(wanted, there) {
		changes = append(changes, host.Change{Field: "key", To: keyText(k)})
	}
	return changes
}

// except are the keys that are in one list and not in another.
func except(some, others []declare.SSHKey) []declare.SSHKey {
	known := make(map[string]bool, len(others))
	for _, k := range others {
		known[k.Blob] = true
	}
	return slices.DeleteFunc(slices.Clone(some), func(k declare.SSHKey) bool { return known[k.Blob] })
}

// keysOf are the keys of a text, each once.
func keysOf(text string) []declare.SSHKey {
	var keys []declare.SSHKey
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if k, err := declare.ParseSSHKey(endless(line)); err == nil && !seen[k.Blob] {
			seen[k.Blob] = true
			keys = append(keys, k)
		}
	}
	return keys
}

// keyText is a key for a person.
func keyText(k declare.SSHKey) string {
	return strings.TrimRight(k.Type+" "+k.Fingerprint()+" "+shown(k.Comment), " ")
}

// weaknesses lists the declared keys that should not be trusted for long.
func weaknesses(lines []string) []string {
	var weak []string
	for _, line := range lines {
		if k, err := declare.ParseSSHKey(line); err == nil && k.Weakness() != "" {
			weak = append(weak, keyText(k)+" is "+k.Weakness())
		}
	}
	return weak
}

func octal(perm uint32) string { return strconv.FormatUint(uint64(perm), 8) }
