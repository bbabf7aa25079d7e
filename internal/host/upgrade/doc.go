// Package upgrade carries out the resource type agent: it puts another program in the place of the one that is running this very code, and
// sees to it that the old one comes back if the new one is no good.
//
//	old agent:  stage the new program and a copy of its own, in STATE/upgrade
//	            rehearse: both plan the enforced state, in processes of their own that write nothing; the plans must be equal
//	            note the trial; start tako-agent-trial.service, which runs the copy
//	            exchange the program; have systemd restart tako-agent.service
//	new agent:  when it keeps the host, and a server has taken its watch, it takes the note of the trial away: it stays
//	the copy:   a minute after it was started and the note is still there: note the refusal, put itself back, restart the agent
//
// Whoever moves or removes the note first has decided, so the two cannot both act. The copy needs nothing of the new program, which may
// crash, hang, or not be a program at all. tako-agent.service wants tako-agent-trial.service, and that has the note as its condition: so a
// trial that a power cut has ended begins anew.
//
// The package owns no goroutine.
package upgrade
