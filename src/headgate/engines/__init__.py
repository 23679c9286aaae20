"""Where state lives: the contract and the engines that keep it."""
