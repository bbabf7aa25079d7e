package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/remote"
)

// ownership are the flags that say under whose name fields are applied, and what becomes of those of others.
type ownership struct {
	manager string
	force   bool
}

func (o *ownership) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.manager, "field-manager", "", "who owns the fields afterwards (default tako:USER, with --set tako)")
	cmd.Flags().BoolVar(&o.force, "force-conflicts", false, "take over fields that somebody else owns, and objects of others")
}

// managerMax is how many characters the API allows for a field manager.
const managerMax = 128

// managers returns under whose name is applied, and which name what the same person applies by hand has.
func (o *ownership) managers(ctx context.Context, server *remote.Server, inSet bool) (manager, personal string, err error) {
	if len(o.manager) > managerMax || strings.ContainsFunc(o.manager, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", "", failure.Usage("read --field-manager", "it is no name of a field manager", "write up to 128 printable characters")
	}
	user, err := server.WhoAmI(ctx)
	switch {
	case err == nil:
		personal = managerOf(user)
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		personal = remote.FieldManager // a server that does not say it has no other name to offer
	default:
		return "", "", failure.Of(err, "ask the server who asks it")
	}
	if inSet {
		return cmp.Or(o.manager, remote.FieldManager), personal, nil
	}
	return cmp.Or(o.manager, personal), personal, nil
}

// managerOf is the field manager of a user. Names of the server's own users begin as it does. Names of service accounts may be
// longer than what the API allows: those end in a digest.
func managerOf(user string) string {
	manager := remote.PersonalManager + strings.ToValidUTF8(strings.TrimPrefix(user, remote.PersonalManager), "?")
	if len(manager) <= managerMax {
		return manager
	}
	const kept = 16 // hexadecimal digits of the digest: two of a thousand such names are not alike by chance
	digest := sha256.Sum256([]byte(user))
	return strings.ToValidUTF8(manager[:managerMax-kept-1], "") + "~" + hex.EncodeToString(digest[:])[:kept]
}

// warnOfStays tells of fields that are not in the documents any more and stay all the same.
func (p *program) warnOfStays(changes []*plan.Change, options plan.Options) {
	for _, c := range changes {
		if words := c.Stays(options.Manager); words != "" {
			p.warn(words)
		}
	}
}
