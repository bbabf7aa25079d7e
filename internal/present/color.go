package present

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// ColorMode is the value of --color.
type ColorMode string

// The colour modes. ColorAuto is the default.
const (
	ColorAuto   ColorMode = "auto"
	ColorAlways ColorMode = "always"
	ColorNever  ColorMode = "never"
)

// ParseColorMode reads the value of --color; empty is auto.
func ParseColorMode(s string) (ColorMode, error) {
	switch m := ColorMode(s); m {
	case ColorAuto, ColorAlways, ColorNever:
		return m, nil
	case "":
		return ColorAuto, nil
	}
	return "", &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("read --color=%s", Quote(s)), Hint: "write auto, always or never"}
}

// UseColor decides whether to colour. The flag wins over the environment; there NO_COLOR wins over CLICOLOR_FORCE, and
// both over TERM=dumb and over what the output is.
func UseColor(mode ColorMode, terminal bool, getenv func(string) string) bool {
	switch {
	case mode == ColorAlways:
		return true
	case mode == ColorNever, getenv("NO_COLOR") != "":
		return false
	case getenv("CLICOLOR_FORCE") != "" && getenv("CLICOLOR_FORCE") != "0":
		return true
	}
	return terminal && getenv("TERM") != "dumb"
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// TerminalWidth returns the columns of a terminal, 0 if it is none or does not say.
func TerminalWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// Style says how to write. The zero Style is plain.
type Style struct {
	Color bool
	// Width is the columns of the terminal; 0 means no terminal: nothing is truncated.
	Width int
}

// StyleOf returns the style for an output file.
func StyleOf(f *os.File, mode ColorMode) Style {
	terminal := IsTerminal(f)
	s := Style{Color: UseColor(mode, terminal, os.Getenv)}
	if terminal {
		const widthDefault = 80 // of a terminal that does not say, as a serial console
		if s.Width = TerminalWidth(f); s.Width == 0 {
			s.Width = widthDefault
		}
	}
	return s
}

// sgr is a Select Graphic Rendition parameter, ECMA-48 8.3.117.
type sgr string

const (
	bold   sgr = "1"
	dim    sgr = "2"
	red    sgr = "31"
	green  sgr = "32"
	yellow sgr = "33"
	blue   sgr = "34"
)

func (s Style) paint(c sgr, text string) string {
	if !s.Color || c == "" || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
