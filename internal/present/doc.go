// Package present is how things look to a person: faults with an excerpt of the file, tables, diffs, outcomes, durations
// and sizes. Both binaries use it, so that the same thing looks the same everywhere.
//
// Three rules hold for everything here. Colour never carries a meaning alone: there is always a word or a sign too. What
// comes from outside, a file name or a line of a file, cannot move the cursor or change colours: control characters are
// escaped. Output that is not a terminal gets no colour and no truncation. The package owns no goroutine.
package present
