// Package workloads says of workloads and their instances what a person asks: why they are not as declared, which revisions there are, and how to
// steer a rollout. What is to be said follows from what was read alone; reading and writing go through the server.
package workloads
