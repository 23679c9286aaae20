"""`headgate completion`: scripts that let shells complete commands and options. All of them are made from the parser."""
