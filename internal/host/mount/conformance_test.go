package mount

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

// view is what a test sees of a mount or a swap.
type view struct {
	fields  map[string]string
	options []string // of what is mounted, word by word
}

// needsLoop skips where no loop device is to be had.
func needsLoop(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices")
	}
}

func TestMountConformance(t *testing.T) {
	needsLoop(t)
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	sh(t, `mkdir /srv/tmp /srv/bind /srv/src /srv/disk /srv/off /srv/gone; truncate -s 8M /srv/image; mkfs.ext4 -q /srv/image`)
	paths := []string{"/srv/tmp", "/srv/bind", "/srv/disk", "/srv/off", "/srv/gone"}
	mounts := []declare.Mount{
		{Path: paths[0], Source: "tmpfs", Type: "tmpfs", Options: []string{"size=1024k", "nosuid", "noexec"}},
		{Path: paths[1], Source: "/srv/src", Options: []string{"bind", "ro"}},
		{Path: paths[2], Source: "/srv/image", Type: "ext4", Options: []string{"loop", "noatime"}},
		{Path: paths[3], Source: "tmpfs", Type: "tmpfs", State: declare.MountUnmounted},
		{Path: paths[4], State: declare.MountAbsent},
	}
	situation := func(name, script string) hosttest.Situation {
		return hosttest.Situation{Name: name, Arrange: func(t testing.TB) { sh(t, clean+script) }}
	}
	const right = "tmpfs /srv/tmp tmpfs size=1024k,nosuid,noexec 0 0\n/srv/src /srv/bind none bind,ro 0 0\n/srv/image /srv/disk ext4 loop,noatime 0 0\n" +
		"tmpfs /srv/off tmpfs noauto 0 0\n"
	s := hosttest.Subject{
		Type: g.types[declare.TypeMount],
		Situations: []hosttest.Situation{
			situation("nothing there", "mount -t tmpfs x /srv/gone; echo 'x\t/srv/gone tmpfs noauto' >>/etc/fstab"),
			situation("wrong there", `mount -t tmpfs -o size=2048k tmpfs /srv/tmp; mount --bind /srv/src /srv/bind; mount -o loop,relatime /srv/image /srv/disk; mount -t tmpfs tmpfs /srv/off
				printf 'tmpfs /srv/tmp tmpfs size=2048k 0 0\n/srv/src /srv/bind none bind 0 0\n/srv/image /srv/disk ext4 loop,relatime 0 0\ntmpfs /srv/off tmpfs defaults 0 0\ntmpfs /srv/off/ tmpfs ro 0 0\nx /srv/gone tmpfs noauto' >>/etc/fstab`),
			situation("unmounted by hand", "mount -t tmpfs tmpfs /srv/off; mount -t tmpfs x /srv/gone; printf '"+right+"' >>/etc/fstab"),
			situation("line removed by hand", `mount -t tmpfs -o size=1024k,nosuid,noexec tmpfs /srv/tmp; mount --bind /srv/src /srv/bind; mount -o remount,bind,ro /srv/bind
				mount -o loop,noatime /srv/image /srv/disk; mount -t tmpfs x /srv/gone; mount -t tmpfs x /srv/gone`),
		},
		Observe: func(t testing.TB, i int) any {
			v := view{fields: map[string]string{fieldState: wordNot, fieldBoot: bootLine(t, paths[i])}}
			words := strings.Split(shown(t, paths[i], "OPTIONS"), ",")
			if words[0] == "" {
				return v
			}
			v.fields[fieldState] = wordMounted
			has := func(yes, no string) {
				if slices.Contains(words, no) {
					yes = no
				}
				v.options = append(v.options, yes)
			}
			switch i {
			case 0:
				has("suid", "nosuid")
				has("exec", "noexec")
				for _, w := range words {
					if strings.HasPrefix(w, "size=") {
						v.options = append(v.options, w)
					}
				}
			case 1:
				has("rw", "ro")
			case 2:
				has("relatime", "noatime")
			}
			return v
		},
		Difference: func(_ int, before, after any) []host.Change {
			b, a := before.(view), after.(view)
			changes := fieldDifference(b.fields, a.fields)
			var from, to []string
			for k := range b.options {
				if len(a.options) > k && a.options[k] != b.options[k] {
					from, to = append(from, b.options[k]), append(to, a.options[k])
				}
			}
			if len(to) > 0 {
				changes = append(changes, host.Change{Field: fieldOptions, From: strings.Join(from, ","), To: strings.Join(to, ",")})
			}
			return changes
		},
		Snapshot: func(t testing.TB) string { return hosttest.Tree(t, "/etc", "/srv/src") + see(t, mountinfo) },
		Disturb: func(t testing.TB) {
			for _, p := range paths {
				sh(t, "printf '\nx "+p+" tmpfs noauto,x-other 0 0\n' >>/etc/fstab")
			}
		},
		Remembers: true,
	}
	for _, m := range mounts {
		s.Declared = append(s.Declared, hosttest.Declared(mountOf(m)))
		s.Gone = append(s.Gone, view{fields: map[string]string{fieldState: wordNot, fieldBoot: wordAbsent}})
	}
	hosttest.Run(t, s)
	for _, line := range []string{"# UNTOUCHED\tline\n\n  LABEL=\"root disk\"   /  ext4 defaults,errors=remount-ro 0 1\nproc /proc\\040x proc noauto\n"} {
		if body := see(t, fstabFile); !strings.HasPrefix(body, line) {
			t.Errorf("lines of others have changed:\n%s", body)
		}
	}
}

func fieldDifference(before, after map[string]string) []host.Change {
	var changes []host.Change
	for name, to := range after {
		if from := before[name]; from != to {
			changes = append(changes, host.Change{Field: name, From: from, To: to})
		}
	}
	return changes
}

func TestSwapConformance(t *testing.T) {
	dir := onDisk(t)
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	five := 5
	paths := []string{dir + "/made", dir + "/given", dir + "/gone"}
	swaps := []declare.Swap{{Path: paths[0], Size: "1Mi", Priority: &five}, {Path: paths[1]}, {Path: paths[2], State: declare.SwapAbsent}}
	situation := func(name, script string) hosttest.Situation {
		const area = "area() { rm -f \"$1\"; truncate -s 1M \"$1\"; chmod \"$2\" \"$1\"; mkswap -q \"$1\" 2>/dev/null; }\n"
		return hosttest.Situation{Name: name, Arrange: func(t testing.TB) {
			sh(t, clean+"head -n 1 /proc/swaps >/srv/head; cat /srv/head >/proc/swaps; cd "+dir+"; rm -f *\n"+area+strings.ReplaceAll(script, "DIR", dir))
		}}
	}
	hosttest.Run(t, hosttest.Subject{
		Type:     g.types[declare.TypeSwap],
		Declared: []host.Declared{hosttest.Declared(swapOf(swaps[0])), hosttest.Declared(swapOf(swaps[1])), hosttest.Declared(swapOf(swaps[2]))},
		Situations: []hosttest.Situation{
			situation("nothing there", "area given 600; area gone 600; swapon -- DIR/gone; echo 'DIR/gone\tnone swap sw 0 0' >>/etc/fstab"),
			situation("nothing in it", "truncate -s 2M made; area given 640; area gone 600; echo 'DIR/gone none swap sw 0 0' >>/etc/fstab"),
			situation("wrong there", `area made 600; swapon --priority 7 -- DIR/made; area given 644; area gone 600; swapon -- DIR/gone
				printf 'DIR/made none swap defaults,pri=7,nofail 0 0\nDIR/given none swap noauto,discard 0 0\n' >>/etc/fstab`),
			situation("turned off by hand", `area made 600; area given 600; area gone 600; swapon -- DIR/gone
				printf 'DIR/made none swap sw,pri=5 0 0\nDIR/given none swap sw 0 0\n' >>/etc/fstab`),
			situation("line removed by hand", "area made 600; swapon --priority 5 -- DIR/made; area given 600; swapon -- DIR/given; area gone 600; swapon -- DIR/gone"),
		},
		Observe: func(t testing.TB, i int) any {
			v := view{fields: map[string]string{fieldState: wordOff, fieldBoot: bootLine(t, paths[i]), fieldFile: wordAbsent, fieldMode: "", fieldPriority: ""}}
			for line := range strings.Lines(see(t, swapsFile)) {
				if f := strings.Fields(line); f[0] == paths[i] {
					v.fields[fieldState], v.fields[fieldPriority] = wordOn, f[4]
				}
			}
			if st, err := os.Stat(paths[i]); err == nil {
				v.fields[fieldFile], v.fields[fieldMode] = "without a swap area", fmt.Sprintf("%04o of 0", st.Mode().Perm())
				if strings.HasSuffix(see(t, paths[i])[:4096], "SWAPSPACE2") {
					v.fields[fieldFile] = "1Mi"
				}
			}
			return v
		},
		Difference: func(_ int, before, after any) []host.Change {
			b := before.(view).fields
			return slices.DeleteFunc(fieldDifference(b, after.(view).fields), func(c host.Change) bool {
				return c.Field == fieldPriority && b[fieldState] == wordOff || c.To == "" || c.Field == fieldMode && b[fieldFile] != "1Mi"
			})
		},
		Gone: []any{
			view{fields: map[string]string{fieldState: wordOff, fieldBoot: wordAbsent, fieldFile: wordAbsent, fieldMode: "", fieldPriority: ""}},
			view{fields: map[string]string{fieldState: wordOff, fieldBoot: wordAbsent, fieldFile: "1Mi", fieldMode: "0600 of 0", fieldPriority: ""}},
			view{fields: map[string]string{fieldState: wordOff, fieldBoot: wordAbsent, fieldFile: "1Mi", fieldMode: "0600 of 0", fieldPriority: ""}},
		},
		Snapshot: func(t testing.TB) string { return hosttest.Tree(t, "/etc", dir) + see(t, swapsFile) },
		Disturb: func(t testing.TB) {
			for _, p := range paths {
				sh(t, "echo '"+p+" none swap noauto,x-other 0 0' >>/etc/fstab")
			}
		},
		Remembers: true,
	})
}

// swapsToFiles skips where the tests are on a file system that takes no swap files.
func swapsToFiles(t testing.TB, dir string) {
	t.Helper()
	if unfit, _, err := swapPlace(dir, 0); err != nil || unfit != "" {
		t.Skipf("needs a disk for swap files: %s %v", unfit, err)
	}
}
