package declare

import (
	"strconv"
	"strings"
)

// Mode is a file mode in octal text, "0644" or "644", or, for files and directories, in the symbols of chmod(1), "u=rw,g=r,o=";
// empty means the type's default.
type Mode string

// The default modes. A file is readable by all and a directory enterable by all, as a plain umask of 022 makes them.
const (
	fileModeDefault             = 0o644
	secretModeDefault           = 0o600
	directoryModeDefault        = 0o755
	modeMax                     = 0o7777
	modeOthers           uint32 = 0o077
)

// Bits returns the mode as the kernel counts it, permission and the three special bits; false if it is not an octal number
// up to 07777.
func (m Mode) Bits() (uint32, bool) {
	if len(m) == 0 || len(m) > 5 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(m), 8, 32)
	return uint32(n), err == nil && n <= modeMax
}

func (m Mode) bitsOr(other uint32) uint32 {
	if bits, ok := m.Bits(); ok {
		return bits
	}
	return other
}

// ModeRule is what a mode makes of the bits that are there: some are set, some cleared, and the others left as they are. No bit is in
// both. It is the same done once or twice.
type ModeRule struct{ Set, Clear uint32 }

// Of returns what the rule makes of a mode.
func (r ModeRule) Of(bits uint32) uint32 { return bits&^r.Clear | r.Set }

// Left are the bits that the rule leaves as they are.
func (r ModeRule) Left() uint32 { return modeMax &^ (r.Set | r.Clear) }

// The bits that each letter of who stands for.
const (
	modeUser   = 0o4700
	modeGroup  = 0o2070
	modeOther  = 0o1007
	modeSetIDs = 0o6000
	// modeBytesMax bounds a symbolic mode: three clauses with three changes each have some forty.
	modeBytesMax = 64
)

// Rule returns what the mode means, octal or in symbols, for a directory or for another file; false where it is neither.
//
// In symbols it is clauses with commas between: who, of u, g, o and a, then changes, each of + - or = and any of r, w, x, s and t, as
// chmod(1) has them. As there, = leaves the set-id bits of a directory, unless it has s. What depends on more than the bit itself is not
// taken, because the outcome has to be the same done once or twice: no X, no copies (g=u), and no clause without who, which depends on
// the umask.
func (m Mode) Rule(directory bool) (ModeRule, bool) {
	if bits, ok := m.Bits(); ok {
		return ModeRule{bits, modeMax &^ bits}, true
	}
	if m == "" || len(m) > modeBytesMax {
		return ModeRule{}, false
	}
	var rule ModeRule
	for clause := range strings.SplitSeq(string(m), ",") {
		who := clause[:len(clause)-len(strings.TrimLeft(clause, "ugoa"))]
		if who == "" || !rule.clause(whoBits(who), clause[len(who):], directory) {
			return ModeRule{}, false
		}
	}
	return rule, true
}

// whoBits are the bits that letters of who stand for.
func whoBits(who string) uint32 {
	var bits uint32
	for _, letter := range who {
		switch letter {
		case 'u':
			bits |= modeUser
		case 'g':
			bits |= modeGroup
		case 'o':
			bits |= modeOther
		case 'a':
			bits |= modeMax
		}
	}
	return bits
}

// clause adds the changes of one clause; false where they cannot be read.
func (r *ModeRule) clause(affected uint32, changes string, directory bool) bool {
	if changes == "" {
		return false
	}
	for changes != "" {
		sign := changes[0]
		if sign != '+' && sign != '-' && sign != '=' {
			return false
		}
		letters := changes[1:]
		if end := strings.IndexAny(letters, "+-="); end >= 0 {
			letters = letters[:end]
		}
		bits, ok := letterBits(letters)
		if !ok {
			return false
		}
		changes = changes[1+len(letters):]
		bits &= affected
		set, cleared := bits, uint32(0)
		switch sign {
		case '-':
			set, cleared = 0, bits
		case '=':
			cleared = affected &^ bits
			if directory && bits&modeSetIDs == 0 {
				cleared &^= modeSetIDs
			}
		}
		r.Set, r.Clear = r.Set&^cleared|set, r.Clear&^set|cleared
	}
	return true
}

// letterBits are the bits of letters of what may be done, for everybody.
func letterBits(letters string) (bits uint32, ok bool) {
	for _, letter := range letters {
		switch letter {
		case 'r':
			bits |= 0o444
		case 'w':
			bits |= 0o222
		case 'x':
			bits |= 0o111
		case 's':
			bits |= modeSetIDs
		case 't':
			bits |= 0o1000
		default:
			return 0, false
		}
	}
	return bits, true
}

// ruleOr returns the mode's rule; where none is declared, that of a default.
func (m Mode) ruleOr(other uint32, directory bool) ModeRule {
	if rule, ok := m.Rule(directory); ok {
		return rule
	}
	return ModeRule{other, modeMax &^ other}
}
