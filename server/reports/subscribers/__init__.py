"""Who wants to be told of what: by mail, by webhook, and to the systems that the site is connected with."""
