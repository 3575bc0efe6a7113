"""FedValue between organisations: the counting server over HTTP, and the parties as programs."""
