module pointsman.dev/examples/go-labels

go 1.26
