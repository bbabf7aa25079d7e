// Package service carries out systemd units: whether they run, and whether they start at boot.
//
// A check is one look at the unit through the bus; a unit in order costs nothing else. What it compares:
//
//	daemon-reload  files that systemd has not read yet
//	enabled        where it is declared: a link below /etc, which survives a reboot; one below /run does not count
//	masked         likewise
//	state          active and reloading is running, inactive and failed is stopped; what is on its way (activating,
//	               deactivating) is neither, so that what requires the service waits for its job
//
// A oneshot unit runs, once it is done, only with RemainAfterExit=yes; without, nothing would be there to keep.
//
//	apply:    read changed unit files (one daemon-reload for all), look again, then act on what was planned and still differs:
//	          unmask before enable before start, stop before disable before mask; look once more
//	refresh:  declared stopped -> nothing; a start later than the notification -> satisfied; otherwise restart or reload
//	remove:   delete -> stop and disable; restore -> as it was
//
// A failed unit may have used up its start limit. The limit is lifted once after Bind, and for each refresh, because a new
// declaration is a new reason to try. For a repair of drift it stands: then systemd's judgement and the engine's back-off
// decide. A unit that somebody else has masked is unmasked only where that is declared.
//
// The package owns no goroutine.
package service
