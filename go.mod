module github.com/divvy-gpu/divvy

go 1.26.0
