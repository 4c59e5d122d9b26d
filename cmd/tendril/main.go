// Command tendril runs an agent inside a boundary.
package main

func main() {}
