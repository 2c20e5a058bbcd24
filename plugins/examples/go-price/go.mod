module pointsman.dev/examples/go-price

go 1.26
