"""The whole way through a real Jenkins controller, with the service's own code: `make e2e-jenkins`."""
