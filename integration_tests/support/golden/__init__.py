"""Ledgers, state topics and checkpoints as earlier versions wrote them: made by make.py, once a
version; put into a Kafka of today by load.py; test_upgrade.py goes on from them."""
