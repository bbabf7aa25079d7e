package systemd

import (
	"maps"
	"slices"
)

// rulesPerUnitMax is the number of units up to which the bus is asked for each unit by name. Two rules each and a few more
// stay far below the 512 rules that dbus-daemon grants a connection by default, and below what makes matching slow.
const rulesPerUnitMax = 64

const (
	fromSystemd = "type='signal',sender='" + busName + "',"
	ruleReload  = fromSystemd + "path='" + managerPath + "',interface='" + managerInterface + "',member='Reloading'"
	ruleFiles   = fromSystemd + "path='" + managerPath + "',interface='" + managerInterface + "',member='UnitFilesChanged'"
	ruleJobs    = fromSystemd + "path='" + managerPath + "',interface='" + managerInterface + "',member='JobRemoved'"
	ruleChanges = fromSystemd + "interface='" + propertiesInterface + "',member='PropertiesChanged'"
	ruleOwner   = "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='" + busName + "'"
)

// interest is the set of units whose changes are wanted. A unit may be asked for by an alias; systemd speaks of it by its
// main name, so both are known here. It is a value in the sense that methods change nothing but the maps they own; the Bus
// guards it.
type interest struct {
	mainName map[string]string   // wanted name -> main name, "" until systemd has told it
	wantedAs map[string][]string // main name or wanted name -> wanted names to report
}

func newInterest() interest {
	return interest{mainName: make(map[string]string), wantedAs: make(map[string][]string)}
}

// replace makes units the whole set. Main names already learned stay.
func (in *interest) replace(units []string) {
	old := in.mainName
	in.mainName = make(map[string]string, len(units))
	for _, u := range units {
		in.mainName[u] = old[u]
	}
	in.index()
}

// learn notes the main name of a wanted unit and reports whether that changes what must be asked for.
func (in *interest) learn(unit, mainName string) (changed bool) {
	known, wanted := in.mainName[unit]
	if !wanted || known == mainName {
		return false
	}
	in.mainName[unit] = mainName
	in.index()
	return unit != mainName || known != ""
}

func (in *interest) index() {
	clear(in.wantedAs)
	for _, unit := range slices.Sorted(maps.Keys(in.mainName)) {
		in.wantedAs[unit] = append(in.wantedAs[unit], unit)
		if main := in.mainName[unit]; main != "" && main != unit {
			in.wantedAs[main] = append(in.wantedAs[main], unit)
		}
	}
}

// rules returns the match rules to have on the bus, sorted; withJobs asks for the end of every job as well.
func (in *interest) rules(withJobs bool) []string {
	return rulesFor(slices.Collect(maps.Keys(in.wantedAs)), withJobs)
}

// rulesFor returns the match rules for units of these names, sorted.
func rulesFor(names []string, withJobs bool) []string {
	rules := []string{ruleReload, ruleFiles, ruleOwner}
	if len(names) > rulesPerUnitMax {
		rules = append(rules, ruleChanges+",path_namespace='"+unitPathPrefix[:len(unitPathPrefix)-1]+"'")
		withJobs = true
	} else {
		for _, name := range names {
			if !ruleSafe(name) {
				continue // no such unit can exist
			}
			rules = append(rules, ruleChanges+",path='"+string(unitPath(name))+"'", ruleJobs+",arg2='"+name+"'")
		}
	}
	if withJobs {
		rules = append(rules, ruleJobs)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// ruleSafe reports whether a unit name can stand in a match rule as it is. The characters that systemd.unit(5) allows do.
func ruleSafe(name string) bool {
	for i := range len(name) {
		if c := name[i]; !plainInPath(c) && !isUnitPunctuation(c) {
			return false
		}
	}
	return name != ""
}

func isUnitPunctuation(c byte) bool {
	switch c {
	case ':', '-', '_', '.', '\\', '@':
		return true
	}
	return false
}
