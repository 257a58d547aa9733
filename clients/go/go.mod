module github.com/pintle/pintle/clients/go

go 1.21
