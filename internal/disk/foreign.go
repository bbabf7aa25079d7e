package disk

// othersWrite are the permissions of others than the owner to change something.
const othersWrite = 0o022

// Foreign returns the first of several things that others than root and the user uid own, or may write to; false where there is none.
func Foreign(uid uint32, things ...Stat) (Stat, bool) {
	for _, st := range things {
		if st.UID != 0 && st.UID != uid || st.Mode&othersWrite != 0 {
			return st, true
		}
	}
	return Stat{}, false
}
