// Package account carries out who may use a host: users and groups of its own passwd and group files, and the ssh keys with which
// users may log in.
//
// Users and groups are one Type, because they share files and locks. A check reads /etc/passwd, group, shadow and gshadow, and runs
// nothing; while these files are as they were when a resource was found to be as declared, it costs one stat of each for all resources
// of a call. What it cannot make sense of (lines of NIS, other forms) is nobody's account and stays as it is.
//
//	apply:  somebody holds a lock of the files   -> an error with the holder, and when to try again; nothing waits
//	        the account is not as it was checked -> ConcurrentEdit
//	        otherwise the programs of shadow-utils, which lock the files and write them whole, one after the other:
//	          user:  useradd | usermod (what may be changed at any time), chage, chpasswd, usermod (number, home), mkhomedir_helper
//	          group: groupadd | groupmod, gpasswd
//	        look again: what is still not as declared is an error
//	remove: the same with what was there before, or userdel, groupdel
//
// Each program leaves the files in order, and the next check finds what the ones after it had still to do: there is nothing to note
// between them. A program outlives the agent. A hash of a password is given on standard input, and is in no plan, error or log.
//
// A file of ssh keys lies in a directory that belongs to its user, who may put anything anywhere there at any moment. So:
//
//	what is not a file of the user is not read: somebody else's text would be copied into a file that he may read
//	no owner and no mode of what is there is ever changed: the file is written anew, through package durable
//	a directory that is missing is made with the user's own rights, by mkdir in a process of his
//
// The package owns no goroutine.
package account
