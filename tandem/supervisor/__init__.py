"""`tandem up`: a gateway and its workers as child processes of one supervisor."""
