package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/host/all"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// holdDefault is how long what was restored is held: until the day after, when whoever declares it has had time to.
const holdDefault = 24 * time.Hour

// restoreFlags are what restore is told.
type restoreFlags struct {
	*common
	list    bool
	version string
	reason  string
	lasts   time.Duration
}

func newRestore(c *common) *cobra.Command {
	f := &restoreFlags{common: c}
	cmd := &cobra.Command{
		Use:   "restore PATH",
		Short: "Put back what was at a path before tako replaced or removed it",
		Long: `restore puts an old content of a file back: what was there before the last change by tako, or the version that is asked for. The host
keeps old contents for 30 days, while there is room.

What is declared of the path is held from then on, so that it is not undone at once: status, why and the server say so, with the reason, who
it was, and the end. "tako-agent resume PATH" ends it sooner.`,
		Example: `  tako-agent restore /etc/motd --list
  tako-agent restore /etc/motd
  tako-agent restore /etc/motd --version 3 --for 2h --reason 'the new greeting breaks a script'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args[0]) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.list, "list", false, "list what there is, the newest first, and change nothing")
	fs.StringVar(&f.version, "version", "", "which: its number in the list, or its digest or the beginning of that (default the newest that differs)")
	fs.StringVar(&f.reason, "reason", "", "why, for whoever finds it (default: that it was restored, and which version)")
	fs.DurationVar(&f.lasts, "for", holdDefault, "how long what is declared is held")
	fs.BoolVar(&f.json, "json", false, "write JSON")
	return cmd
}

// oldContent is one old content of a path, as it is shown.
type oldContent struct {
	Number int       `json:"number"` // 1 is the newest
	At     time.Time `json:"at"`     // when it was replaced or removed
	Digest string    `json:"digest"`
	Size   int64     `json:"size"`
	Mode   string    `json:"mode"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
}

func (f *restoreFlags) run(ctx context.Context, path string) error {
	state, err := f.stateDir()
	if err != nil {
		return err
	}
	root, err := filepath.Abs(f.root)
	if err != nil {
		return &reason.Error{Code: reason.Usage, Doing: "find --root " + f.root, Cause: err}
	}
	if path, err = filepath.Abs(path); err != nil {
		return &reason.Error{Code: reason.Usage, Doing: "find " + path, Cause: err}
	}
	r, err := all.OpenRestorer(all.Options{Root: root, StateDir: state})
	if err != nil {
		return err
	}
	defer r.Close()
	versions, err := r.Versions(path)
	if err != nil {
		return err
	}
	list := make([]oldContent, len(versions))
	for i, v := range versions {
		list[i] = oldContent{i + 1, v.At, v.Digest.String(), v.Size, fmt.Sprintf("%04o", v.Mode), v.UID, v.GID}
	}
	if f.list {
		return f.show(path, list)
	}
	chosen, err := f.choose(path, list, func(i int) (bool, error) { return r.Differs(path, versions[i]) })
	if err != nil {
		return err
	}
	v, known := r.Kept(f.version)
	if chosen >= 0 {
		v, known = versions[chosen], true
	}
	if !known {
		return noOldContent(path, "no version "+f.version+" is kept")
	}
	when := "an unknown time"
	if !v.At.IsZero() {
		when = v.At.UTC().Format(time.RFC3339)
	}
	h := agent.Hold{Reason: cmp.Or(f.reason, "restored to what it was until "+when), Owner: whoami(), Until: time.Now().Add(f.lasts).Truncate(time.Second)}
	managed, err := f.hold(ctx, state, path, h)
	if err != nil {
		return err
	}
	note, err := r.Restore(ctx, path, v, !managed.converged)
	if err != nil {
		return errors.Join(err, managed.release(ctx, state))
	}
	fmt.Printf("✔ Restored  %s to %s of %s (%s)\n", present.Quote(path), v.Digest, when, present.Bytes(v.Size))
	if note != "" {
		fmt.Println("  " + note)
	}
	fmt.Printf("✔ Held  until %s\n", h.Until.Local().Format("2006-01-02 15:04:05 -0700"))
	for _, subject := range managed.subjects {
		fmt.Printf("next: tako-agent resume %s%s\n", present.Quote(subject), f.rootFlag())
	}
	return nil
}

// show lists old contents.
func (f *restoreFlags) show(path string, list []oldContent) error {
	if f.json {
		return json.NewEncoder(os.Stdout).Encode(list)
	}
	if len(list) == 0 {
		return noOldContent(path, "none is kept")
	}
	fmt.Printf("%-3s  %-20s  %10s  %s\n", "NO", "UNTIL", "SIZE", "DIGEST")
	for _, v := range list {
		fmt.Printf("%-3d  %-20s  %10s  %s\n", v.Number, v.At.UTC().Format(time.RFC3339), present.Bytes(v.Size), v.Digest)
	}
	return nil
}

// choose returns the index of the version that is meant; -1 for one that is not in the list but may be kept all the same.
func (f *restoreFlags) choose(path string, list []oldContent, differs func(int) (bool, error)) (int, error) {
	if f.version == "" {
		for i := range list {
			if other, err := differs(i); err != nil || other {
				return i, err
			}
		}
		if len(list) > 0 {
			return 0, noOldContent(path, "all that is kept is what is there now")
		}
		return 0, noOldContent(path, "none is kept")
	}
	if n, err := strconv.Atoi(f.version); err == nil && len(f.version) < 8 {
		if n < 1 || n > len(list) {
			return 0, noOldContent(path, fmt.Sprintf("there is no version %d of %d", n, len(list)))
		}
		return n - 1, nil
	}
	found := -1
	for i, v := range list {
		if !strings.HasPrefix(v.Digest, f.version) && !strings.HasPrefix(v.Digest, "sha256:"+f.version) {
			continue
		}
		if found >= 0 && list[found].Digest != v.Digest {
			return 0, &reason.Error{Code: reason.RestoreAmbiguous, Doing: "restore " + present.Quote(path), Cause: fmt.Errorf("%s is the beginning of %s and of %s", f.version, list[found].Digest, v.Digest)}
		}
		if found < 0 {
			found = i
		}
	}
	return found, nil
}

func noOldContent(path, why string) error {
	return &reason.Error{Code: reason.NoOldContent, Doing: "restore " + present.Quote(path), Cause: errors.New(why), Hint: "tako-agent restore " + present.Quote(path) + " --list lists what there is"}
}

// stake is what is declared of a path.
type stake struct {
	claims    []string
	subjects  []string // what people call them
	converged bool     // what is there now is what is declared
}

// hold holds everything that is declared of a path, and the path itself where nothing is: so nobody purges it either.
func (f *restoreFlags) hold(ctx context.Context, state, path string, h agent.Hold) (stake, error) {
	s := stakeOf(ctx, state, path)
	for i, claim := range s.claims {
		h.Claim = claim
		if err := local.SetHold(ctx, state, h); err != nil {
			s.claims = s.claims[:i]
			return s, errors.Join(err, s.release(ctx, state))
		}
	}
	return s, nil
}

func (s *stake) release(ctx context.Context, state string) error {
	var errs []error
	for _, claim := range s.claims {
		_, err := local.EndHolds(ctx, state, "", claim)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// home is the home directory of a user, as the passwd file has it: accounts are those of the host itself, whatever --root says.
func home(name string) string {
	u, err := user.Lookup(name)
	if err != nil {
		return ""
	}
	return filepath.Clean(u.HomeDir)
}

// stakeOf asks an agent, or what one has left, what is declared of a path. Without any, the path itself is all that is known.
func stakeOf(ctx context.Context, state, path string) stake {
	own := declare.Claim{Kind: declare.ClaimPath, ID: path}.String()
	s := stake{claims: []string{own}, subjects: []string{path}}
	r, running, err := local.StatusOf(ctx, state, true)
	if err != nil {
		return s
	}
	for _, res := range r.Resources {
		claim, known := declare.ParseClaim(res.Claim)
		switch {
		case !known:
		case res.Claim == own:
			s.converged = running && res.Outcome.Converged()
		case claim.Writes(path, home):
			s.claims, s.subjects = append(s.claims, res.Claim), append(s.subjects, res.Title)
		}
	}
	return s
}
