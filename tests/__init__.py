"""The tests, in folders by what a test needs; README.md describes them."""
