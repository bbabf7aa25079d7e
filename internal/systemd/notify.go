package systemd

import "github.com/coreos/go-systemd/v22/daemon"

// Notify tells systemd about this very process (sd_notify(3)): Notify(Ready). It does nothing and returns nil where nobody
// asked for it, that is, where NOTIFY_SOCKET is not set.
func Notify(state string) error {
	_, err := daemon.SdNotify(false, state)
	return err
}

// The states of Notify.
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
	Watchdog = daemon.SdNotifyWatchdog
)

// Status is the state that shows text, one line, in `systemctl status`.
func Status(text string) string { return "STATUS=" + text }
