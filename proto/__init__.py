"""The wire: domain nouns shared by every process, their protobuf form, and the only code that knows it.

Everything outside this package handles the frozen dataclasses in `fault`, `sampling`, `work`, `ticket`,
`worker` and `reservation`; `convert` turns them into protobuf messages and back.
"""
