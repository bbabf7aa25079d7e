// Package edit carries out the resource type edit: a part of a text file is as declared, and the rest stays somebody else's.
//
// What a part is and how a text is changed is package part, which is pure. Here texts are read and written: owner, mode, access list and
// attributes of a file stay, the old content is kept in the content store first, a check command may refuse the new one.
//
//	check:  sort by path, look at each file once (one statx); shallow, and it is what is remembered: recognised
//	        otherwise read it once for all its edits, and edit the text for each; what differs is the plan
//	apply:  gather the plans of each file; hold the file's lock: look again; edit the text for one after the other; back up; one write
//	        with all checks -> refused: each edit alone, so that one does not stop the others
//	remove: delete  -> the text without the part
//	        restore -> the text with what was there of the part before; a file that was made and has nothing in it goes
//
// A plan is void when the file has changed since its check, unless all that changed it was another edit here: a site, one for each file
// that was written, remembers which of our writes led from one signature to the next. An edit is made anew on the text as it is then.
//
// Temporaries that a killed run has left beside a file go before it is written for the first time.
//
// A signature is trusted without a look at the content only when it was taken after the tick of the kernel's clock in which the file
// changed, as in package file.
//
// The package owns no goroutine.
package edit
