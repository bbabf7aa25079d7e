package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/apiserver/state"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// trustCommand changes whom the fleet trusts.
func trustCommand() *cobra.Command {
	var p place
	c := &cobra.Command{
		Use: "trust", Short: "Show and change the keys that the fleet trusts, on the server's machine",
		Long: `Hosts trust what numbered documents say, each signed by enough root keys of the one before. A new cluster has one root key, in
its server's data directory. These commands take it offline, add others, and make new numbers.

They are for the server's user and for root, while the server runs. new-root-key, new-key, public-key and sign need no server: they are for
those who hold the keys.`,
		Example: `  tako trust show
  tako trust export-root /media/safe/root-key --remove
  tako trust new-root-key /media/safe/root-key
  tako trust add-root ed25519:... --threshold 2 --out proposal.json
  tako trust sign proposal.json --key /media/safe/root-key
  tako trust accept proposal.json`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: withoutSettings,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	p.flags(c)
	c.AddCommand(showTrust(&p), exportRoot(&p), newRootKey(), publicKey(), addRoot(&p), removeRoot(&p), rotateRoot(&p), bumpEpoch(&p),
		newKey(), setKey(&p), revokeKey(&p), setFallback(&p), signTrust(), acceptTrust(&p))
	return c
}

func showTrust(p *place) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Print the trust documents, as hosts get them", Args: cobra.NoArgs,
		Example: "  tako trust show > trust.json",
		RunE: p.with(func(c *cobra.Command, a *state.Admin, _ []string) error {
			chain, err := a.Chain(c.Context())
			if err != nil {
				return err
			}
			b, err := chain.Encode()
			if err != nil {
				return err
			}
			current := chain.Current()
			fmt.Fprintf(c.ErrOrStderr(), "number %d, epoch %d, %d root keys of which %d sign; hosts pin %s\n", current.Number, current.Epoch, len(current.Root.Keys), current.Root.Threshold, chain.Pin())
			_, err = c.OutOrStdout().Write(b)
			return err
		}),
	}
}

func exportRoot(p *place) *cobra.Command {
	var remove bool
	c := &cobra.Command{
		Use: "export-root FILE", Short: "Write the root key to a file, to take it offline", Args: cobra.ExactArgs(1),
		Example: "  tako trust export-root /media/safe/root-key --remove",
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			id, err := a.ExportRoot(c.Context(), args[0], remove)
			if err != nil {
				return err
			}
			rest := "it is in " + a.RootKeyPath() + " too, until you take it away with --remove"
			if remove {
				rest = "it is not on this server any more: keep a second copy"
			}
			fmt.Fprintf(c.ErrOrStderr(), "root key %s is in %s; %s\n", id, args[0], rest)
			return nil
		}),
	}
	c.Flags().BoolVar(&remove, "remove", false, "take it away from the data directory")
	return c
}

func newRootKey() *cobra.Command {
	return &cobra.Command{
		Use: "new-root-key FILE", Short: "Make a root key in a new file, and print its public key; no server is needed", Args: cobra.ExactArgs(1),
		Long: `Makes a key for somebody who is to hold one. Only the public key goes to the server's machine, where "tako trust add-root" has the
fleet trust it. Until then the key is nothing.`,
		Example: "  tako trust new-root-key /media/safe/root-key",
		RunE: func(c *cobra.Command, args []string) error {
			return makeKey(c, args[0], "`tako trust add-root` takes this on the server's machine")
		},
	}
}

func publicKey() *cobra.Command {
	return &cobra.Command{
		Use: "public-key FILE", Short: "Print the public key of a root key; no server is needed", Args: cobra.ExactArgs(1),
		Example: "  tako trust public-key /media/safe/root-key",
		RunE: func(c *cobra.Command, args []string) error {
			key, err := trust.LoadSigningKey(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "key %s\n", key.Public().ID())
			_, err = fmt.Fprintln(c.OutOrStdout(), key.Public())
			return err
		},
	}
}

// proposing are the flags of a change that may need more signatures.
type proposing struct {
	threshold int
	out       string
}

func (f *proposing) flags(c *cobra.Command) {
	c.Flags().IntVar(&f.threshold, "threshold", 0, "how many root keys must sign from now on; default as before")
	f.outFlag(c)
}

func (f *proposing) outFlag(c *cobra.Command) {
	c.Flags().StringVar(&f.out, "out", "", "file for the proposal, when more signatures are needed")
}

func addRoot(p *place) *cobra.Command {
	var f proposing
	c := &cobra.Command{
		Use: "add-root PUBLIC-KEY", Short: "Trust one more root key", Args: cobra.ExactArgs(1),
		Long:    `The public key is what "tako trust new-root-key" or "tako trust public-key" prints, on the machine of whoever is to hold it.`,
		Example: "  tako trust add-root ed25519:Zm9v... --threshold 2",
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			key, err := trust.ParsePublicKey(args[0])
			if err != nil {
				return err
			}
			return f.change(c, a, trust.AddRoot(key, f.threshold))
		}),
	}
	f.flags(c)
	return c
}

func removeRoot(p *place) *cobra.Command {
	var f proposing
	c := &cobra.Command{
		Use: "remove-root KEY", Short: "Trust a root key no more, for ever", Args: cobra.ExactArgs(1),
		Long: `KEY is a public key, or the id of one. It is revoked: it can never be added again. One of the root keys that stay must be able to
sign the next number, so the last one is not removed, and --threshold may have to lower how many sign.`,
		Example: `  tako trust remove-root ed25519:Zm9v...
  tako trust remove-root 0f3c5d5f8d0a4c7e9b1d2f3a4b5c6d7e --threshold 1`,
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			id, err := keyID(args[0])
			if err != nil {
				return err
			}
			edits := []trust.Edit{trust.RemoveRoot(id)}
			if f.threshold != 0 {
				edits = append(edits, trust.SetThreshold(f.threshold))
			}
			return f.change(c, a, edits...)
		}),
	}
	f.flags(c)
	return c
}

var idForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// keyID reads the id of a key, or the public key that it is of.
func keyID(s string) (trust.KeyID, error) {
	if idForm.MatchString(s) {
		return trust.KeyID(s), nil
	}
	key, err := trust.ParsePublicKey(s)
	if e := new(reason.Error); errors.As(err, &e) {
		e.Hint += "; an id has 32 hexadecimal digits"
	}
	return key.ID(), err
}

func rotateRoot(p *place) *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Put a fresh root key into the place of the one in the data directory", Args: cobra.NoArgs,
		Long:    `The old key is revoked, and with it every copy that was exported: export the new one.`,
		Example: "  tako trust rotate",
		RunE: p.with(func(c *cobra.Command, a *state.Admin, _ []string) error {
			r, err := a.RotateRoot(c.Context(), time.Now())
			if r != nil {
				fmt.Fprintf(c.ErrOrStderr(), "trust document %d is in force: root key %s is in %s\n", r.Number, r.New, r.Path)
				fmt.Fprintf(c.ErrOrStderr(), "root key %s is void, and so is every copy of it: run `tako trust export-root FILE` again\n", r.Old)
			}
			return err
		}),
	}
}

func bumpEpoch(p *place) *cobra.Command {
	var f proposing
	c := &cobra.Command{
		Use: "bump-epoch", Short: "Make void everything that was signed for hosts before", Args: cobra.NoArgs,
		Example: "  tako trust bump-epoch",
		RunE:    p.with(func(c *cobra.Command, a *state.Admin, _ []string) error { return f.change(c, a, trust.BumpEpoch()) }),
	}
	f.outFlag(c)
	return c
}

// change makes the next number. What others must sign first is written to a file.
func (f *proposing) change(c *cobra.Command, a *state.Admin, edits ...trust.Edit) error {
	proposal, err := a.Change(c.Context(), time.Now(), edits...)
	if err == nil {
		tellInForce(c, proposal)
		return nil
	}
	if !reason.Is(err, reason.SignaturesMissing) {
		return err
	}
	if f.out == "" {
		reason.Of(err).Hint = "repeat it with --out FILE: that writes a proposal, which is signed where the other keys are"
		return err
	}
	if err := writeProposal(f.out, proposal); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "nothing is changed yet; %v\n", errors.Unwrap(err))
	fmt.Fprintf(c.ErrOrStderr(), "next: `tako trust sign %s --key FILE` with other root keys, then `tako trust accept %s`\n", f.out, f.out)
	return nil
}

func tellInForce(c *cobra.Command, s trust.Signed) {
	fmt.Fprintf(c.ErrOrStderr(), "trust document %d is in force: epoch %d, %d root keys of which %d sign\n", s.Document.Number, s.Document.Epoch, len(s.Document.Root.Keys), s.Document.Root.Threshold)
}

func signTrust() *cobra.Command {
	var keyFile string
	c := &cobra.Command{
		Use: "sign FILE", Short: "Add a signature to a proposed trust document; no server is needed", Args: cobra.ExactArgs(1),
		Example: "  tako trust sign proposal.json --key /media/safe/root-key",
		RunE: func(c *cobra.Command, args []string) error {
			key, err := trust.LoadSigningKey(keyFile)
			if err != nil {
				return err
			}
			proposal, err := readProposal(args[0])
			if err != nil {
				return err
			}
			if err := proposal.CheckSigner(key.Public()); err != nil {
				return err
			}
			shown, err := json.MarshalIndent(proposal.Document, "", "  ")
			if err != nil {
				return err
			}
			if proposal, err = proposal.Sign(key); err != nil {
				return err
			}
			if err := writeProposal(args[0], proposal); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "%s\nsigned with key %s\n", shown, key.Public().ID())
			return nil
		},
	}
	c.Flags().StringVar(&keyFile, "key", "", "file with a root key")
	cobra.CheckErr(c.MarkFlagRequired("key"))
	return c
}

func acceptTrust(p *place) *cobra.Command {
	return &cobra.Command{
		Use: "accept FILE...", Short: "Put a trust document into force that enough root keys have signed", Args: cobra.MinimumNArgs(1),
		Long: `FILE is a proposal, signed by one after the other. Where copies of it were signed, give all of them.`,
		Example: `  tako trust accept proposal.json
  tako trust accept signed-by-ann.json signed-by-bob.json`,
		RunE: p.with(func(c *cobra.Command, a *state.Admin, args []string) error {
			proposal, err := readProposal(args[0])
			for _, file := range args[1:] {
				var other trust.Signed
				if err == nil {
					other, err = readProposal(file)
				}
				if err == nil {
					proposal, err = proposal.Merge(other)
				}
			}
			if err != nil {
				return err
			}
			others, err := a.Accept(c.Context(), proposal, time.Now())
			for _, id := range others {
				fmt.Fprintf(c.ErrOrStderr(), "left out: the signature of key %s, which is no root key\n", id)
			}
			if err == nil {
				tellInForce(c, proposal)
			}
			return err
		}),
	}
}

// proposalMax is far more than a proposal has, bytes.
const proposalMax = 1 << 20

func readProposal(path string) (trust.Signed, error) {
	f, err := os.Open(path)
	if err != nil {
		return trust.Signed{}, proposalFault("read proposal "+path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, proposalMax))
	if err != nil {
		return trust.Signed{}, proposalFault("read proposal "+path, err)
	}
	return trust.DecodeSigned(b)
}

func writeProposal(path string, s trust.Signed) error {
	b, err := s.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o644); err != nil { // no secret is in it
		return proposalFault("write proposal "+path, err)
	}
	return nil
}

func proposalFault(doing string, err error) error {
	return &reason.Error{Code: reason.SystemCallFailed, Doing: doing, Cause: err}
}
